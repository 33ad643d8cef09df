/** As people call it: the console's key is named by it. */
export function browserName(agent: string = navigator.userAgent): string {
  const names: readonly (readonly [RegExp, string])[] = [
    [/Edg\//, 'Edge'],
    [/OPR\//, 'Opera'],
    [/Firefox\//, 'Firefox'],
    [/Chrome\//, 'Chromium'],
    [/Safari\//, 'Safari'],
  ];
  return names.find(([pattern]) => pattern.test(agent))?.[1] ?? 'browser';
}
