// Texts for numbers, as the commands print them.

/** @param {number | null | undefined} seconds @returns {string} */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.001) return `${trim(seconds * 1e6)} us`;
  if (seconds < 1) return `${trim(seconds * 1e3)} ms`;
  if (seconds < 120) return `${trim(seconds)} s`;
  if (seconds < 7200) return `${trim(seconds / 60)} min`;
  if (seconds < 172800) return `${trim(seconds / 3600)} h`;
  return `${trim(seconds / 86400)} d`;
}

/** @param {number | null | undefined} count @returns {string} */
export function number(count) {
  if (count === null || count === undefined) return "";
  if (Math.abs(count) >= 1e6) return `${trim(count / 1e6)} M`;
  if (Math.abs(count) >= 1e4) return `${trim(count / 1e3)} k`;
  return trim(count);
}

/** @param {number | null | undefined} count @returns {string} */
export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${trim(count)} ${units[unit]}`;
}

/** @param {{total: number, error: number}} estimate @returns {string} */
export function estimated(estimate) {
  return estimate.error ? `${number(estimate.total)} ± ${number(estimate.error)}` : number(estimate.total);
}

/** @param {number} unixS @returns {string} */
export function clock(unixS) {
  return new Date(unixS * 1000).toLocaleTimeString([], {hour12: false});
}

/** @param {string} id @returns {string} */
export function shortId(id) {
  return id.slice(0, 8);
}

/** @param {number} value @returns {string} */
function trim(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}
