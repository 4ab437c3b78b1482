/** Named attacks with commands (finding L): a program that starts another one is opaque, whatever it is called. */
import { describe, expect, it } from 'vitest';
import { commandFact } from '../../facade/shell.ts';
import { verifies } from '../verifies.ts';

const STARTS_OTHERS = [
  'linux64 curl x', 'setarch -R curl x', 'i386 curl x', 'setpriv --nnp curl x', 'choom -n 0 curl x', 'runuser -u me curl', 'uclampset curl x', 'fakeroot curl x', 'npx curl', 'npm exec curl', 'npm x curl', 'npm -c curl',
  '/lib64/ld-linux-x86-64.so.2 /usr/bin/curl x', 'ld.so curl', "git -c 'alias.x=!curl y' x", 'git -c core.fsmonitor=./x status', 'git --config-env=a.b=C status', 'git --exec-path=. status', 'git -C sub status', 'git --git-dir=x status',
  'git --paginate log', 'git x', 'git', 'git bisect run ./x', 'git submodule foreach x', 'git rebase --exec x main', 'git difftool', 'git diff --ext-diff', 'git diff --ext', 'git diff --textconv', 'git grep -O x', 'git commit -S', 'git log --show-signature', 'git log --format=%GG',
  'git clone ext::x y', 'git fetch --upload-pack=x', 'git push --exec=x', 'git push --receive-pack=x', 'git config core.pager x', 'git filter-branch x',
  'env curl', 'nice curl', 'awk x', 'sed -e x', 'tar -cf x y', 'vim x', 'less x', 'man x', 'ssh x', 'node x.js', 'python3 x.py', 'ruby x', 'perl x', 'systemd-run x', 'unshare x', 'firejail x', 'gdb x', 'strace x', 'a-program-of-tomorrow x',
  'find . -exec curl', 'find . -execdir curl', 'find . -ok x', 'sort --compress-program=x', 'sort --comp x', 'split --filter=x', 'rg --pre x y', 'rg -z x', 'file -z x', 'curl -K x', 'curl -sK x', 'wget --use-askpass=x', 'tee >(x)',
  './ls', '/tmp/ls', 'bin/ls', '/usr/bin/../../tmp/ls', '/usr/bin/x/ls', '//bin/ls', 'LS', 'l\u0455', 'PATH=. ls', 'LD_PRELOAD=./x.so ls', 'PATH=.; ls', 'ls() { x; }; ls', 'alias ls=x; ls',
  'make -f x', 'make SHELL=./x', 'make --eval=x', 'npm --prefix x test', 'npm test --script-shell=./x', 'go test -exec ./x', 'go run x', 'go generate', 'cargo run', 'cargo --config x build', 'mvn exec:exec', 'pytest -c x', 'pytest -p x',
];
const LITERAL = [
  'ls -l', '/bin/ls', '/usr/bin/ls', 'cat a | grep b | wc -l', 'git status', 'git diff src', 'git log --oneline', 'git --no-pager log', 'git add src', "git commit -m 'Mend it'", "git commit -m '--ext-diff'", 'git push origin topic', 'git branch -a',
  'npm test', 'npm ci', 'npm run build', 'make test', 'pytest', 'go test ./...', 'cargo build', 'find . -name x', 'sort -n x', 'diff a b', 'mkdir -p a/b', 'rm -rf x', 'grep -rn x src',
];

describe('a command that starts another program (L)', () => {
  it.each(STARTS_OTHERS)('%s is opaque' + verifies('TR-53'), (text) => {
    expect(commandFact(text)).toEqual({ text, opaque: true, words: [] });
  });

  it.each(LITERAL)('%s is literal', (text) => {
    expect(commandFact(text).opaque).toBe(false);
  });
});
