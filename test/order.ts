/** Owns the order of test files: those that take longest first, so that no worker is left alone with one of them at the end. */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Parts of the paths of files that take more than five seconds, the longest first. */
const LONGEST = [
  'adapters/stdio',
  'process/stdio',
  'reload/swap',
  'supervisor/killed',
  'supervisor/processes',
  'switch/switch',
  'docs/connecting',
  'policy/authoring',
  'policy/rego.',
  'connect/',
  'policy/fields',
  'recording/traffic',
  'process/',
  'policy/',
  'supervisor/',
  'docs/',
  'mapped/',
  'host/',
  'config/properties',
  'oauth/',
  'stories/',
  'properties/',
  'sandbox/',
  'reload/',
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
