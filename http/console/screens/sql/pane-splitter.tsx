import { useRef } from 'preact/hooks';
import { change, settings } from './sql-screen-state.ts';

const SHARE_MIN = 12;
const SHARE_MAX = 85;
const STEP = 4;

/** Between the editor and the results. @see https://www.w3.org/WAI/ARIA/apg/patterns/windowsplitter/ */
export function PaneSplitter() {
  const bar = useRef<HTMLHRElement>(null);
  const { editorShare } = settings.value;
  const move = (share: number) => change({ editorShare: Math.round(Math.min(SHARE_MAX, Math.max(SHARE_MIN, share))) });
  const onKeyDown = (event: KeyboardEvent) => {
    const next = { ArrowUp: editorShare - STEP, ArrowDown: editorShare + STEP, Home: SHARE_MIN, End: SHARE_MAX }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    move(next);
  };
  const onPointerMove = (event: PointerEvent) => {
    const panes = bar.current?.parentElement?.getBoundingClientRect();
    if (panes === undefined || !bar.current?.hasPointerCapture(event.pointerId)) return;
    move(((event.clientY - panes.top) / panes.height) * 100);
  };
  return (
    <hr
      ref={bar}
      class="sql-splitter"
      tabIndex={0}
      aria-label="Height of the editor"
      aria-orientation="horizontal"
      aria-valuenow={editorShare}
      aria-valuemin={SHARE_MIN}
      aria-valuemax={SHARE_MAX}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.preventDefault();
        bar.current?.setPointerCapture(event.pointerId);
      }}
      onPointerMove={onPointerMove}
      onDblClick={() => move(40)}
    />
  );
}
