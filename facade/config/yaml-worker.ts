/** Owns the inside of the thread that parses YAML: texts in, plain data out; judges nothing. */
import { parentPort, workerData } from 'node:worker_threads';
import { parseYaml } from './document.ts';

parentPort?.postMessage((workerData as readonly string[]).map(parseYaml));
