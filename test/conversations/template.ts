/**
 * The `{{…}}` of a script:
 *
 *     {{user}} {{A.pid}}     a variable
 *     {{x*1000}} {{"ab"*9}}  a text, so many times
 *     {{*}}                  anything (in what is expected only)
 */
const PLACEHOLDER = /\{\{(?:(?<text>"(?:[^"\\]|\\.)*"|.)\*(?<times>\d+)|(?<name>[\w.]+))\}\}/g;

/** @throws Error for a name that `lookUp` does not know */
export function fillIn(template: string, lookUp: (name: string) => string | undefined): string {
  return template.replace(PLACEHOLDER, (_whole, text: string | undefined, times: string | undefined, name: string | undefined) => {
    if (text !== undefined) return (text.startsWith('"') ? (JSON.parse(text) as string) : text).repeat(Number(times));
    const value = lookUp(name ?? '');
    if (value === undefined) throw new Error(`no such variable: ${name}`);
    return value;
  });
}

/** Whether `actual` is what `expected` says, `{{*}}` standing for anything. */
export function matches(expected: string, actual: string): boolean {
  if (!expected.includes('{{*}}')) return expected === actual;
  const parts = expected.split('{{*}}').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(actual);
}

/** Writes long runs of one character as `{{x*1000}}`. */
export function shorten(text: string): string {
  return text.replace(/([^"\\{}])\1{63,}/g, (run, character: string) => `{{${character}*${run.length}}}`);
}
