// Tables as comma-separated values (RFC 4180).

const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Rows of texts and numbers as CSV; numbers are written so that reading them gives the same numbers. */
export const csvOf = (rows) => rows.map((row) => row.map((x) => field(String(x))).join(",")).join("\r\n") + "\r\n";
