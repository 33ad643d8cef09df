export const LINES_TYPE = 'application/x-ndjson';
const JSON_TYPE = 'application/json';

/**
 * Whether a caller prefers one JSON document a line to a single document. Wildcards express no preference.
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.accept
 */
export function prefersNdjson(accept = ''): boolean {
  // Few clients accept NDJSON, so nothing else is parsed for most.
  if (!/ndjson/i.test(accept)) return false;
  const weights = new Map(accept.split(',').map(weighted));
  return (weights.get(LINES_TYPE) ?? 0) > (weights.get(JSON_TYPE) ?? 0);
}

function weighted(range: string): [type: string, weight: number] {
  const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return [type, weight === undefined ? 1 : Number(weight) || 0];
}
