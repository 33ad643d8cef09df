import { greetOnTerminal } from './banner.ts';
import { runService } from './service-process.ts';

await runService(process.env, greetOnTerminal);
