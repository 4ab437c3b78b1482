/** Tests where control groups are made, by trees of files that stand for those of machines of many kinds. */
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
  /** The root of all has no type. */
  readonly isRoot?: boolean;
  /** Without cgroup.procs, it cannot be written. */
  readonly closed?: boolean;
}

/** Makes a group of version 2 at a path beneath the root. */
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

const unified = (group: string, seen = '/'): ControlGroupView => ({
  groups: `0::${group}\n`,
  mounts: `22 27 0:21 / /proc rw - proc proc rw\n30 22 0:26 ${seen} ${root} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n`,
  pid: PID,
});
const placeOf = (group: string): string | undefined => {
  const found = findControlGroupParent(unified(group));
  return found === undefined ? undefined : path.relative(root, found.folder);
};

describe('with control groups of version 2, the place is', () => {
  it('beside the terminal in a session of the desktop, whose slice the user may write', () => {
    level('', { gives: 'memory', isRoot: true });
    level('user.slice/app.slice', { gives: 'memory pids' });
    level('user.slice/app.slice/terminal.scope', { procs: [1, PID], max: 'max' });
    expect(placeOf('/user.slice/app.slice/terminal.scope')).toBe('user.slice/app.slice');
    expect(findControlGroupParent(unified('/user.slice/app.slice/terminal.scope'))?.version).toBe(2);
  });

  it('our own group where it is ours alone, and we go into a part of it', () => {
    level('', { isRoot: true, closed: true });
    level('tollgate.service', { procs: [PID], max: '4294967296' });
    expect(placeOf('/tollgate.service')).toBe('tollgate.service');
    expect(readFileSync(path.join(root, 'tollgate.service/tollgate/cgroup.procs'), 'utf8')).toBe(`${PID}`);
    expect(readFileSync(path.join(root, 'tollgate.service/cgroup.subtree_control'), 'utf8')).toBe('+memory +pids');
  });

  it('that which we divided before', () => {
    level('', { isRoot: true, closed: true });
    level('tollgate.service', { gives: 'memory pids' });
    level('tollgate.service/tollgate', { procs: [PID], max: 'max' });
    expect(placeOf('/tollgate.service/tollgate')).toBe('tollgate.service');
  });

  it('the root of all, when we are in it', () => {
    level('', { isRoot: true, procs: [1, 2, PID] });
    expect(placeOf('/')).toBe('');
    expect(existsSync(path.join(root, 'tollgate'))).toBe(false);
  });

  it('found through a mount that shows a part of the tree only', () => {
    level('', { gives: 'memory' });
    level('inner', { procs: [1, PID], max: 'max' });
    expect(findControlGroupParent(unified('/docker/abc/inner', '/docker/abc'))).toMatchObject({ folder: root });
    expect(findControlGroupParent(unified('/docker/other', '/docker/abc'))).toBeUndefined();
  });
});

describe('there is none', () => {
  it('where we would leave a limit that we have, or that somebody between has', () => {
    level('', { gives: 'memory', isRoot: true });
    level('limited.scope', { procs: [1, PID], max: '4294967296' });
    expect(placeOf('/limited.scope')).toBeUndefined();
    level('limited.slice', { gives: '', max: '1073741824' });
    level('limited.slice/free.scope', { procs: [1, PID], max: 'max' });
    expect(placeOf('/limited.slice/free.scope')).toBeUndefined();
  });

  it('where nothing above may be written, as over ssh, or gives memory on', () => {
    level('', { isRoot: true, closed: true });
    level('user.slice', { gives: 'memory', closed: true });
    level('user.slice/session.scope', { procs: [1, PID], closed: true, max: 'max' });
    expect(placeOf('/user.slice/session.scope')).toBeUndefined();
    level('pods', { gives: 'cpu' });
    level('pods/one', { procs: [1, PID], max: 'max' });
    expect(placeOf('/pods/one')).toBeUndefined();
  });

  it('where the kernel refuses to divide it', () => {
    level('', { isRoot: true, closed: true });
    level('one', { procs: [PID] });
    // In the place of the folder that we would go to.
    writeFileSync(path.join(root, 'one/tollgate'), '');
    expect(placeOf('/one')).toBeUndefined();
  });

  it('without control groups, or with a controller that is mounted nowhere', () => {
    expect(findControlGroupParent({ groups: '', mounts: '', pid: PID })).toBeUndefined();
    expect(findControlGroupParent({ groups: '4:memory:/one\n', mounts: '', pid: PID })).toBeUndefined();
    expect(
      findControlGroupParent({ groups: '0::/one\n', mounts: `30 22 0:26 / ${root} rw - tmpfs tmpfs rw\n`, pid: PID }),
    ).toBeUndefined();
  });
});

it('is our own group with those of version 1, if it may be written', () => {
  const view = (group: string): ControlGroupView => ({
    groups: `9:name=systemd:/\n4:cpu,memory:${group}\n0::/\n`,
    mounts: `35 31 0:32 / ${root} rw,relatime - cgroup cgroup rw,cpu,memory\n41 31 0:38 / ${root}/unified rw - cgroup2 cgroup2 rw\n`,
    pid: PID,
  });
  mkdirSync(path.join(root, 'one'));
  expect(findControlGroupParent(view('/one'))).toEqual({ version: 1, folder: path.join(root, 'one') });
  expect(findControlGroupParent(view('/other'))).toBeUndefined();
});
