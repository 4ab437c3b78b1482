/** Owns the order of test files: those that take longest first, so that no worker is left alone with one of them at the end. */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Parts of the paths of files that take more than ten seconds, the longest first. */
const LONGEST = [
  'supervisor/killed', 'policy/rego.', 'mapped/stories-desktop-commander', 'reload/swap', 'policy/authoring', 'docs/cookbook', 'supervisor/processes', 'docs/', 'adapters/stdio', 'recording/traffic', 'process/', 'policy/', 'connect/', 'host/', 'supervisor/',
] as const;

const rankOf = ({ moduleId }: TestSpecification): number => {
  const rank = LONGEST.findIndex((part) => moduleId.includes(`/test/${part}`));
  return rank === -1 ? LONGEST.length : rank;
};

/** Long files first; the rest as Vitest orders them. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted].sort((a, b) => rankOf(a) - rankOf(b));
  }
}
