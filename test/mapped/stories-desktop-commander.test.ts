/** Runs the stories of the primitives on desktop-commander. */
import { primitivesSuite } from '../stories/primitives.suite.ts';

primitivesSuite('desktop-commander');
