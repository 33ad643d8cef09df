import { effect, type Signal } from '@preact/signals';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { MountedEditor } from './codemirror.ts';
import type { EditorHandle } from './editor-handle.ts';
import type { EditorError } from './error-range.ts';

export interface EditorProps {
  /** For screen readers. */
  readonly label: string;
  /** Both ways. */
  readonly text: Signal<string>;
  /** Underlined, with its message, and scrolled to. The mark goes when the text changes. */
  readonly error?: EditorError | undefined;
  /** Ctrl-Enter or Cmd-Enter. */
  readonly onRun?: () => void;
  /** With Shift. */
  readonly onRunAll?: () => void;
  /** Called again with another handle when the editor takes the place of the plain text area. */
  readonly onReady?: (handle: EditorHandle) => void;
  readonly isReadOnly?: boolean;
  readonly placeholder?: string;
}

/** Where the keyboard goes on after Tab has been used for indenting (WCAG 2.1.2). */
const HELP = 'Tab indents. Press Escape and then Tab to leave the editor.';

/** Edits SQL. Until the code of the editor is there, and if it cannot be loaded, in a plain text area. */
export function Editor(props: EditorProps) {
  const { label, text, error, isReadOnly = false, placeholder } = props;
  const [mounted, setMounted] = useState<MountedEditor>();
  const [isHelpShown, showHelp] = useState(false);
  const host = useRef<HTMLDivElement>(null);
  const plain = useRef<HTMLTextAreaElement>(null);
  const helpId = useId();
  const now = useRef(props);
  now.current = props;

  useEffect(() => {
    const { current: area } = plain;
    if (area !== null) now.current.onReady?.(plainHandle(area, text));
    let isGone = false;
    let editor: MountedEditor | undefined;
    let stop = () => {};
    const begin = async () => {
      const { mountEditor } = await import('./codemirror.ts');
      if (isGone || host.current === null) return;
      const at =
        area === null ? undefined : { from: area.selectionStart, to: area.selectionEnd, isFocused: document.activeElement === area };
      editor = mountEditor(host.current, {
        label,
        help: HELP,
        text: text.peek(),
        placeholder: placeholder ?? '',
        onChange: (next) => {
          text.value = next;
          showHelp(false);
        },
        onTab: () => showHelp(true),
        onRun: () => now.current.onRun?.(),
        onRunAll: () => now.current.onRunAll?.(),
      });
      stop = effect(() => editor?.replace(text.value));
      setMounted(editor);
      if (at?.isFocused) {
        editor.handle.select(at.from, at.to);
        editor.handle.focus();
      }
      now.current.onReady?.(editor.handle);
    };
    // The plain text area stays when it cannot be loaded.
    begin().catch(() => undefined);
    return () => {
      isGone = true;
      stop();
      editor?.destroy();
    };
  }, [text]);

  useEffect(() => mounted?.setReadOnly(isReadOnly), [mounted, isReadOnly]);
  useEffect(() => mounted?.setLabel(label), [mounted, label]);
  useEffect(() => mounted?.setError(error), [mounted, error]);

  return (
    <div class="editor">
      <div class="editor-host" ref={host} />
      {isHelpShown && (
        <p class="editor-help" aria-hidden="true">
          {HELP}
        </p>
      )}
      {mounted === undefined && (
        <textarea
          ref={plain}
          class="editor-plain"
          aria-label={label}
          aria-invalid={error !== undefined || undefined}
          aria-describedby={error === undefined ? undefined : helpId}
          value={text.value}
          readOnly={isReadOnly}
          placeholder={placeholder}
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          onInput={({ currentTarget }) => {
            text.value = currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            if (event.shiftKey) props.onRunAll?.();
            else props.onRun?.();
          }}
        />
      )}
      {mounted === undefined && error !== undefined && (
        <p id={helpId} class="unseen">
          {error.message}
        </p>
      )}
    </div>
  );
}

/** What can be done with the plain text area. */
function plainHandle(area: HTMLTextAreaElement, text: Signal<string>): EditorHandle {
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
