#!/usr/bin/env node
/**
 * Stands in for npm and for Python with venv and pip, so that tests of clients' files need no registry. Every package
 * exists in every version, and has a program `run.js` or of its own name. Only `no-such-package` does not exist, and
 * `breaks-once` cannot be installed the first time.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const INTEGRITY = `sha512-${'A'.repeat(86)}==`;
const [first, ...rest] = process.argv.slice(2);
const after = (flag) => rest[rest.indexOf(flag) + 1];

/** Returns the digest of a package of the catalog. */
function verified(name, version) {
  const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../catalogs/servers');
  const texts = readdirSync(folder).map((file) => readFileSync(path.join(folder, file), 'utf8'));
  const text = texts.find((one) => one.includes(`  name: '${name}'\n  version: ${version}\n`));
  return /integrity: (\S+)/.exec(text ?? '')?.[1];
}

if (rest[0]?.startsWith('no-such-package') || rest.at(-1)?.startsWith('no-such-package')) {
  console.error('npm error 404 Not Found');
  process.exit(1);
}

if (first === 'view') {
  const [, name, version] = /^(@?[^@]+)@(.*)$/.exec(rest[0]);
  const exact = /^\d/.test(version) ? version : '1.0.0';
  console.log(JSON.stringify({ name, version: exact, 'dist.integrity': INTEGRITY, bin: { run: 'run.js' } }));
} else if (first === 'install') {
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  const [[name, version]] = Object.entries(dependencies);
  if (name === 'breaks-once' && !existsSync('../broken')) {
    writeFileSync('../broken', '');
    process.exit(1);
  }
  mkdirSync(path.join('node_modules', name), { recursive: true });
  writeFileSync(path.join('node_modules', name, 'run.js'), '');
  const packages = { [`node_modules/${name}`]: { version, integrity: verified(name, version) ?? INTEGRITY } };
  writeFileSync('package-lock.json', JSON.stringify({ packages }));
} else if (rest[0] === 'venv') {
  const bin = path.join(rest[1], 'bin');
  mkdirSync(bin, { recursive: true });
  const python = `#!/bin/sh\nexec '${fileURLToPath(import.meta.url)}' "$@"\n`;
  writeFileSync(path.join(bin, 'python'), python, { mode: 0o755 });
} else if (rest.includes('--report')) {
  const [name, version = '1.0.0'] = rest.at(-1).split('==');
  const archive_info = { hashes: { sha256: '0'.repeat(64) } };
  const install = [
    {
      metadata: { name, version },
      download_info: { url: `https://pypi.example/${name}.whl`, archive_info },
      requested: true,
    },
  ];
  writeFileSync(after('--report'), JSON.stringify({ install }));
} else {
  const [name] = readFileSync('requirements.txt', 'utf8').split('==');
  writeFileSync(path.join('bin', name), '', { mode: 0o755 });
}
