/** Owns the inside of the thread that compiles a policy: gives it the reader of YAML; decides nothing. */
import { runCompilationThread } from '../../policies/engine/compilation-thread.ts';
import { readYaml } from '../config/reading/yaml-document.ts';

await runCompilationThread(readYaml);
