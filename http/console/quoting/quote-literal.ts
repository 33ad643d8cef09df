/** As `quote_literal`: the same string whatever `standard_conforming_strings` says. */
export function quoteLiteral(text: string): string {
  const quoted = `'${text.replaceAll("'", "''").replaceAll('\\', '\\\\')}'`;
  return text.includes('\\') ? `E${quoted}` : quoted;
}
