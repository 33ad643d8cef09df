import { change } from '../sql-screen-state.ts';

const NARROW_PX = 820;

/** There the library is over the editor. */
export function hideLibraryWhereNarrow(): void {
  if (innerWidth <= NARROW_PX) change({ isLibraryOpen: false });
}
