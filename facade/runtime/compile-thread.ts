/** The entry of the thread that compiles a policy. It adds the YAML reader. */
import { runCompilationThread } from '../../policies/engine/compilation-thread.ts';
import { readYaml } from '../config/reading/yaml-document.ts';

void runCompilationThread(readYaml);
