// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
)

// Without writes a copy of the library that lacks the named symbols, like those of older and of reduced
// drivers. Programs that call one without looking it up are ended by the dynamic linker.
func Without(library, copyTo string, symbols ...string) error {
	f, err := elf.Open(library)
	if err != nil {
		return fmt.Errorf("read the library: %w", err)
	}
	names := f.Section(".dynstr")
	if err := f.Close(); err != nil {
		return fmt.Errorf("read the library: %w", err)
	}
	if names == nil {
		return fmt.Errorf("%s has no names of symbols", library)
	}
	image, err := os.ReadFile(library)
	if err != nil {
		return fmt.Errorf("read the library: %w", err)
	}
	table := image[names.Offset : names.Offset+names.Size]
	for _, s := range symbols {
		at := bytes.Index(table, []byte("\x00"+s+"\x00"))
		if at < 0 {
			return fmt.Errorf("%s has no symbol %s", library, s)
		}
		table[at+1] = '_' // it is still found by its hash, and then has another name
	}
	if err := os.WriteFile(copyTo, image, 0o755); err != nil { // a library is readable by all
		return fmt.Errorf("write the library: %w", err)
	}
	return nil
}
