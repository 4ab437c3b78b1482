/** A folder as Kubernetes mounts a ConfigMap or a Secret: every update swaps one link. */
import { mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/**
 * A mounted folder. Files are links to `..data/NAME`, and `..data` is a link to a folder with the content. See
 * AtomicWriter in pkg/volume/util/atomic_writer.go of Kubernetes.
 */
export class MountedFolder {
  readonly folder: string;
  #names: readonly string[] = [];
  #version = 0;

  constructor(folder: string) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  at(name: string): string {
    return path.join(this.folder, name);
  }

  /** Replaces the whole content at once, as the kubelet does. */
  put(files: Readonly<Record<string, string | Uint8Array>>): void {
    const before = this.#version === 0 ? undefined : readlinkSync(this.at('..data'));
    this.#version += 1;
    const content = `..2026_01_0${this.#version}`;
    mkdirSync(this.at(content));
    for (const [name, text] of Object.entries(files)) writeFileSync(path.join(this.at(content), name), text);
    symlinkSync(content, this.at('..data_tmp'));
    renameSync(this.at('..data_tmp'), this.at('..data'));
    for (const name of Object.keys(files))
      if (!this.#names.includes(name)) symlinkSync(path.join('..data', name), this.at(name));
    for (const name of this.#names) if (!(name in files)) rmSync(this.at(name));
    if (before !== undefined) rmSync(this.at(before), { recursive: true });
    this.#names = Object.keys(files);
  }
}
