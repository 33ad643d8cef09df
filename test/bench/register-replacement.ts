/** Loaded ahead of Postern (`--import`): has a piece of its code replaced. */
import { register } from 'node:module';

register('./replacement-hook.js', { parentURL: import.meta.url, data: JSON.parse(process.env.BENCH_REPLACEMENT ?? '') });
