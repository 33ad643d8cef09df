import type { LoadHook } from 'node:module';
import type { Replacement } from './mechanisms.ts';

let replacement: Replacement | undefined;

/** Called in the thread of the module loader. @see https://nodejs.org/api/module.html#customization-hooks */
export function initialize(data: Replacement): void {
  replacement = data;
}

/** @throws Error when the text is not in the module, or more than once */
export const load: LoadHook = async (url, context, nextLoad) => {
  const loaded = await nextLoad(url, context);
  if (replacement === undefined || !url.endsWith(`/dist/${replacement.module}`)) return loaded;
  const { module, text, by } = replacement;
  const parts = String(loaded.source).split(text);
  if (parts.length !== 2) throw new Error(`${module} has ${parts.length - 1} times what is to be replaced: ${text}`);
  return { ...loaded, source: parts.join(by) };
};
