import cluster from 'node:cluster';
import { greetOnTerminal } from './banner.ts';
import { runService } from './service-process.ts';
import { runWorker } from './workers/worker.ts';

if (cluster.isWorker) runWorker(greetOnTerminal);
else await runService(process.env, greetOnTerminal);
