/** Runs the stories of the primitives on server-filesystem. */
import { primitivesSuite } from '../stories/primitives.suite.ts';

primitivesSuite('server-filesystem');
