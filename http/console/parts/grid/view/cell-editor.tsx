import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { GridCommands, OpenCell } from '../commands.ts';

/** A cell's value as a text field in its place. Leaving it sets the value. */
export function CellEditor({
  cell,
  label,
  commands,
}: {
  readonly cell: OpenCell;
  readonly label: string;
  readonly commands: GridCommands;
}) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(cell.text);
  const latest = useRef(text);
  latest.current = text;
  const isDone = useRef(false);
  useLayoutEffect(() => {
    input.current?.focus({ preventScroll: true });
    // What was typed is to be continued.
    if (cell.text === commands.textAt(cell)) input.current?.select();
  }, []);
  const commit = () => {
    if (isDone.current) return;
    isDone.current = true;
    commands.commit(cell, latest.current);
  };
  // It may also scroll out of view.
  useLayoutEffect(() => commit, []);
  const finish = (rows: number, columns: number) => {
    commit();
    commands.focus();
    commands.state.goTo({ row: Math.max(0, cell.row + rows), column: cell.column + columns });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    event.stopPropagation();
    const { key, shiftKey, isComposing } = event;
    if (isComposing) return;
    if (key === 'Escape') {
      isDone.current = true;
      commands.giveUp();
    } else if (key === 'Enter' && shiftKey) {
      isDone.current = true;
      commands.focus();
      commands.show(text);
    } else if (key === 'Enter') finish(1, 0);
    else if (key === 'Tab') finish(0, shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  };
  return (
    <input
      ref={input}
      type="text"
      class="grid-editor"
      aria-label={label}
      value={text ?? ''}
      placeholder={text === undefined ? 'NULL' : 'an empty text'}
      autocomplete="off"
      autocapitalize="off"
      spellcheck={false}
      onInput={({ currentTarget }) => setText(currentTarget.value)}
      onKeyDown={onKeyDown}
      onBlur={commit}
    />
  );
}
