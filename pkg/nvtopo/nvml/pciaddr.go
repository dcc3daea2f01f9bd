// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"strconv"
	"strings"
)

// pciAddr is a PCI address as numbers, the only comparable form: NVML prints an 8-digit upper-case
// domain, sysfs a 4-digit lower-case one, and domains other than 0 are common (Azure puts each device in
// a domain of its own).
type pciAddr struct {
	domain   uint32
	bus, dev uint8
	fn       uint8
}

// hidden reports whether this is the all-ones address that NVML returns for a far end that is not on this
// machine's bus: an NVSwitch hidden by the hypervisor, or on Blackwell any.
func (a pciAddr) hidden() bool { return a.bus == 0xff && a.dev >= 0x1f && a.domain >= 0xffff }

// String returns the address as sysfs names it.
func (a pciAddr) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.domain, a.bus, a.dev, a.fn)
}

// parsePCIAddr parses domain:bus:device.function in any case and width; the function may be absent.
func parsePCIAddr(s string) (pciAddr, error) {
	bad := fmt.Errorf("%q is not a PCI address (domain:bus:device.function)", s)
	rest, fn, hasFn := strings.Cut(strings.TrimSpace(s), ".")
	parts := strings.Split(rest, ":")
	if len(parts) != 3 {
		return pciAddr{}, bad
	}
	if !hasFn {
		fn = "0"
	}
	var v [4]uint64
	for i, p := range append(parts, fn) {
		bits := 8
		if i == 0 {
			bits = 32
		}
		n, err := strconv.ParseUint(p, 16, bits)
		if err != nil {
			return pciAddr{}, bad
		}
		v[i] = n
	}
	// The all-ones address has device ff, beyond the 5 bits of a real one.
	if (v[2] > 0x1f && v[2] != 0xff) || v[3] > 7 {
		return pciAddr{}, bad
	}
	return pciAddr{domain: uint32(v[0]), bus: uint8(v[1]), dev: uint8(v[2]), fn: uint8(v[3])}, nil
}
