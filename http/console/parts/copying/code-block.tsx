import { CopyButton } from './copy-button.tsx';

/** Text to be read or copied as it is. */
export function CodeBlock({ text, label }: { readonly text: string; readonly label?: string }) {
  return (
    <figure class="code">
      {label !== undefined && <figcaption>{label}</figcaption>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what is wider than the screen is scrolled by keys */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </figure>
  );
}
