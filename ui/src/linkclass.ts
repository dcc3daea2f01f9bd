// SPDX-License-Identifier: Apache-2.0

/** How links of a class are drawn: NVLink and its like, one PCIe switch, several, a host bridge, further. */
export type LinkKind = "fabric" | "pix" | "pxb" | "phb" | "sys";

export function linkKind(linkClass: string): LinkKind {
  switch (linkClass) {
    case "PIX":
      return "pix";
    case "PXB":
      return "pxb";
    case "PHB":
    case "NODE":
      return "phb";
    case "SYS":
      return "sys";
    default:
      return "fabric";
  }
}
