/** Tests where Tollgate creates control groups, with folders that imitate the hierarchies of different machines. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ControlGroupView,
  findControlGroupParent,
} from '../../adapters/sandbox/bubblewrap/control-group-parent.ts';

const PID = 4711;
let root: string;

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'tollgate-groups-'));
});

afterEach(() => {
  rmSync(root, { recursive: true, force: true });
});

interface Level {
  /** cgroup.subtree_control */
  readonly gives?: string;
  readonly procs?: readonly number[];
  readonly max?: string;
  /** The root group has no type. */
  readonly isRoot?: boolean;
  /** Without cgroup.procs, it cannot be written. */
  readonly closed?: boolean;
}

/** Creates a group of version 2 at a path below the root. */
function level(at: string, { gives = '', procs = [], max, isRoot = false, closed = false }: Level = {}): void {
  const folder = path.join(root, at);
  mkdirSync(folder, { recursive: true });
  const files = {
    'cgroup.controllers': 'cpu memory pids\n',
    'cgroup.subtree_control': `${gives}\n`,
    ...(!closed && { 'cgroup.procs': procs.join('\n') }),
    ...(!isRoot && { 'cgroup.type': 'domain\n' }),
    ...(max !== undefined && { 'memory.max': `${max}\n`, 'memory.high': 'max\n' }),
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(path.join(folder, name), content);
}

const unified = (group: string, visibleRoot = '/'): ControlGroupView => ({
  groups: `0::${group}\n`,
  mounts: `22 27 0:21 / /proc rw - proc proc rw
30 22 0:26 ${visibleRoot} ${root} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
`,
  pid: PID,
});
const parentOf = (group: string): string | undefined => {
  const found = findControlGroupParent(unified(group));
  return found === undefined ? undefined : path.relative(root, found.folder);
};

describe('findControlGroupParent, version 2', () => {
  it('uses the slice of a desktop session, which the user may write', () => {
    level('', { gives: 'memory', isRoot: true });
    level('user.slice/app.slice', { gives: 'memory pids' });
    level('user.slice/app.slice/terminal.scope', { procs: [1, PID], max: 'max' });
    expect(parentOf('/user.slice/app.slice/terminal.scope')).toBe('user.slice/app.slice');
    expect(findControlGroupParent(unified('/user.slice/app.slice/terminal.scope'))?.version).toBe(2);
  });

  it('uses its own group if it is alone in it, and moves itself into a subgroup', () => {
    level('', { isRoot: true, closed: true });
    level('tollgate.service', { procs: [PID], max: '4294967296' });
    expect(parentOf('/tollgate.service')).toBe('tollgate.service');
    expect(readFileSync(path.join(root, 'tollgate.service/tollgate/cgroup.procs'), 'utf8')).toBe(`${PID}`);
    expect(readFileSync(path.join(root, 'tollgate.service/cgroup.subtree_control'), 'utf8')).toBe('+memory +pids');
  });

  it('uses the group that it divided before', () => {
    level('', { isRoot: true, closed: true });
    level('tollgate.service', { gives: 'memory pids' });
    level('tollgate.service/tollgate', { procs: [PID], max: 'max' });
    expect(parentOf('/tollgate.service/tollgate')).toBe('tollgate.service');
  });

  it('uses the root group if it is in it', () => {
    level('', { isRoot: true, procs: [1, 2, PID] });
    expect(parentOf('/')).toBe('');
    expect(existsSync(path.join(root, 'tollgate'))).toBe(false);
  });

  it('finds its group through a mount that shows only a part of the hierarchy', () => {
    level('', { gives: 'memory' });
    level('inner', { procs: [1, PID], max: 'max' });
    expect(findControlGroupParent(unified('/docker/abc/inner', '/docker/abc'))).toMatchObject({ folder: root });
    expect(findControlGroupParent(unified('/docker/other', '/docker/abc'))).toBeUndefined();
  });
});

describe('findControlGroupParent, version 2, without a usable group', () => {
  it('does not escape a limit of its own group or of a group above', () => {
    level('', { gives: 'memory', isRoot: true });
    level('limited.scope', { procs: [1, PID], max: '4294967296' });
    expect(parentOf('/limited.scope')).toBeUndefined();
    level('limited.slice', { gives: '', max: '1073741824' });
    level('limited.slice/free.scope', { procs: [1, PID], max: 'max' });
    expect(parentOf('/limited.slice/free.scope')).toBeUndefined();
  });

  it('finds none if no group above is writable, as over ssh, or passes memory to its children', () => {
    level('', { isRoot: true, closed: true });
    level('user.slice', { gives: 'memory', closed: true });
    level('user.slice/session.scope', { procs: [1, PID], closed: true, max: 'max' });
    expect(parentOf('/user.slice/session.scope')).toBeUndefined();
    level('pods', { gives: 'cpu' });
    level('pods/one', { procs: [1, PID], max: 'max' });
    expect(parentOf('/pods/one')).toBeUndefined();
  });

  it('finds none if the kernel refuses to divide the group', () => {
    level('', { isRoot: true, closed: true });
    level('one', { procs: [PID] });
    // A file in the place of the subgroup makes its creation fail.
    writeFileSync(path.join(root, 'one/tollgate'), '');
    expect(parentOf('/one')).toBeUndefined();
  });

  it('finds none without control groups, or if the controller is not mounted', () => {
    expect(findControlGroupParent({ groups: '', mounts: '', pid: PID })).toBeUndefined();
    expect(findControlGroupParent({ groups: '4:memory:/one\n', mounts: '', pid: PID })).toBeUndefined();
    expect(
      findControlGroupParent({ groups: '0::/one\n', mounts: `30 22 0:26 / ${root} rw - tmpfs tmpfs rw\n`, pid: PID }),
    ).toBeUndefined();
  });
});

it('findControlGroupParent, version 1, uses its own group if it is writable', () => {
  const view = (group: string): ControlGroupView => ({
    groups: `9:name=systemd:/\n4:cpu,memory:${group}\n0::/\n`,
    mounts: `35 31 0:32 / ${root} rw,relatime - cgroup cgroup rw,cpu,memory
41 31 0:38 / ${root}/unified rw - cgroup2 cgroup2 rw
`,
    pid: PID,
  });
  mkdirSync(path.join(root, 'one'));
  expect(findControlGroupParent(view('/one'))).toEqual({ version: 1, folder: path.join(root, 'one') });
  expect(findControlGroupParent(view('/other'))).toBeUndefined();
});
