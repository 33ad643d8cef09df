export const JSON_TYPE = 'application/json; charset=utf-8';
export const LINES_TYPE = 'application/x-ndjson';
/** @see https://www.rfc-editor.org/rfc/rfc4180#section-3 */
export const CSV_TYPE = 'text/csv; charset=utf-8; header=present';
export const MARKDOWN_TYPE = 'text/markdown';
