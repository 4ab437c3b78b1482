/** Orders the test files: the longest first, so that no worker runs alone with one of them at the end. */
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Parts of the paths of files that take more than five seconds, the longest first. */
const LONGEST = [
  'fuzz/growth',
  'security/largest-messages',
  'setup/newcomer',
  'runtime/snapshot-swap',
  'packages/any-package',
  'faults/killed-code-runs',
  'security-sandbox/made-repositories',
  'security/blocking',
  'sandbox/escape-probes',
  'code/exposure-matrix',
  'config/schema',
  'cli/calls',
  'bench/counts',
  'code/sandbox-limits',
  'stdio/orphans',
  'security-sandbox/opaque-commands',
  'audit/chain-archive',
  'stdio/stdio-connection',
  'process/run-process',
  'supervisor/killed-facade',
  'supervisor/several-processes',
  'switch/master-switch',
  'docs/connecting',
  'authoring/',
  'rego/user-rego',
  'connect/',
  'rules/rule-fields',
  'recording/recorded-traffic',
  'process/',
  'engine/',
  'rules/',
  'supervisor/',
  'docs/',
  'mapped/',
  'host/',
  'config/properties',
  'oauth/',
  'stories/',
  'properties/',
  'sandbox/',
  'container/',
  'runtime/',
] as const;

const rankOf = ({ moduleId }: TestSpecification): number => {
  const rank = LONGEST.findIndex((part) => moduleId.includes(`/test/${part}`));
  return rank === -1 ? LONGEST.length : rank;
};

/** Runs long files first, and the rest in the order of Vitest. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted].sort((a, b) => rankOf(a) - rankOf(b));
  }
}
