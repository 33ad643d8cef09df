import type { Signal } from '@preact/signals';
import type { EditorHandle } from './editor-handle.ts';

/** What can be done with the plain text area. */
export function plainHandle(area: HTMLTextAreaElement, text: Signal<string>): EditorHandle {
  return {
    selection: () => ({ from: area.selectionStart, to: area.selectionEnd }),
    select: (from, to) => {
      area.focus();
      area.setSelectionRange(from, to);
    },
    insert: (inserted) => {
      area.setRangeText(inserted, area.selectionStart, area.selectionEnd, 'end');
      text.value = area.value;
    },
    focus: () => area.focus(),
  };
}
