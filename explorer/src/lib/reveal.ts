/** Scrolls a frame, and never the page, so that a part of it can be seen. Places are in the frame's own pixels. */
export function reveal(frame: HTMLElement, top: number, height: number, left = 0, width = 0): void {
  if (top < frame.scrollTop || top + height > frame.scrollTop + frame.clientHeight)
    frame.scrollTop = top - (frame.clientHeight - height) / 2;
  if (left < frame.scrollLeft || left + width > frame.scrollLeft + frame.clientWidth)
    frame.scrollLeft = left - (frame.clientWidth - width) / 2;
}
