/**
 * What is said at the start on a release of Node that gets no more security fixes.
 * @param version as `process.versions.node`
 * @see https://github.com/nodejs/Release#release-schedule
 */
export function endOfSupport(version: string): string | undefined {
  const major = Number.parseInt(version, 10);
  if (major >= 22) return undefined;
  return `Node ${major} gets no security fixes any more (20 since April 2026): Node 24 is the one to use`;
}
