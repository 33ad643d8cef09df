export const LINES_TYPE = 'application/x-ndjson';
const JSON_TYPE = 'application/json';

/**
 * Whether a caller asks for a document a line, and does not rather have one document. Wildcards ask for nothing in particular.
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.accept
 */
export function prefersLines(accept = ''): boolean {
  // Hardly anybody has heard of them.
  if (!/ndjson/i.test(accept)) return false;
  const weights = new Map(accept.split(',').map(weighted));
  return (weights.get(LINES_TYPE) ?? 0) > (weights.get(JSON_TYPE) ?? 0);
}

function weighted(range: string): [type: string, weight: number] {
  const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return [type, weight === undefined ? 1 : Number(weight) || 0];
}
