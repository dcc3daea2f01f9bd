// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// nvidiaMajor is the major number of NVIDIA's character devices; the control
// device is the last minor number (the kernel's devices.txt).
const (
	nvidiaMajor  = 195
	controlMinor = 255
)

// WriteRoot writes a driver's installation to a folder: library files of the driver's version, of which
// only the given one has content, and a character device for each GPU, under its index. Generators of CDI
// specifications look for these. It needs the right to make device nodes.
func (d *Driver) WriteRoot(root, library string) error {
	image, err := os.ReadFile(library)
	if err != nil {
		return fmt.Errorf("read the library: %w", err)
	}
	lib := filepath.Join(root, "usr/lib64")
	for name, content := range map[string]string{
		"libnvidia-ml.so." + Version: string(image),
		"libcuda.so." + Version:      "",
	} {
		if err := writeFile(filepath.Join(lib, name), content); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := os.Symlink("libnvidia-ml.so."+Version, filepath.Join(lib, LibraryName)); err != nil {
		return fmt.Errorf("link the library: %w", err)
	}
	dev := filepath.Join(root, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil { // as in writeFile
		return fmt.Errorf("make a folder: %w", err)
	}
	nodes := map[string]int{"nvidiactl": controlMinor}
	for i := range d.gpus {
		nodes["nvidia"+strconv.Itoa(i)] = i
	}
	for name, minor := range nodes {
		if err := syscall.Mknod(filepath.Join(dev, name), syscall.S_IFCHR|0o666, nvidiaMajor<<8|minor); err != nil {
			return fmt.Errorf("make the device %s: %w", name, err)
		}
	}
	return nil
}
