/** Owns the inside of the thread that compiles a policy: gives it the reader of YAML; decides nothing. */
import { compileApart } from '../policies/apart.ts';
import { readYaml } from './config/document.ts';

await compileApart(readYaml);
