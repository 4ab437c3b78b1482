/** Runs the stories of the primitives on workspace. */
import { primitivesSuite } from '../stories/primitives.suite.ts';

primitivesSuite('workspace');
