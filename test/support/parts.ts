/**
 * Of a table that describes the same on several servers: what `npm test` takes, or all the rest in `npm run test:full`.
 * @param isShort whether `npm test` takes this row
 */
export function inThisPart<Row>(rows: readonly Row[], isShort: (row: Row) => boolean): readonly Row[] {
  return rows.filter((row) => isShort(row) !== (process.env.TEST_PART === 'full'));
}
