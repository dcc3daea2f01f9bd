// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// kubeletDir is the folder of kubelet's state and, regardless of its flags, of the sockets of device
// plugins.
const kubeletDir = "/var/lib/kubelet"

// privateDirs returns the folders in which kubelet, containerd and their shims write at fixed paths. The
// node sees the machine's files in them; its writes are private.
func privateDirs() []string { return []string{"/run", "/var/lib", "/var/log"} }

// kernelSettings are the sysctls that kubelet sets on the whole machine unless
// they have these values already (k8s.io/component-helpers/node/util/sysctl).
// It is shown files that say so.
func kernelSettings() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// prepareMounts creates the node's own view of the machine. It runs in the node's namespaces, so it is
// invisible outside.
func prepareMounts(what setup) error {
	dir := what.Dir
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// Separators of the options of an overlay.
	if strings.ContainsAny(dir, `,:\`) {
		return errors.New("the node's folder must not have a comma, colon or backslash in its name: " + dir)
	}
	for _, private := range privateDirs() {
		if dir == private || strings.HasPrefix(dir, private+"/") {
			return errors.New("the node's folder must not be in " + private + ": " + dir)
		}
	}
	// The process numbers of the PID namespace.
	if err := mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, private := range privateDirs() {
		if err := overlay(private, filepath.Join(dir, "overlay", private)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(kubeletDir, 0o750); err != nil {
		return fmt.Errorf("make kubelet's folder: %w", err)
	}
	if err := mount("tmpfs", kubeletDir, "tmpfs", 0, "mode=0750"); err != nil {
		return err
	}
	for target, source := range what.Binds {
		if err := mount(source, target, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return shadowKernelSettings(filepath.Join(dir, "sysctl"))
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

// overlay makes target readable as it is and keeps writes to it under dir.
func overlay(target, dir string) error {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make a folder for %s: %w", target, err)
		}
	}
	return mount("overlay", target, "overlay", 0, "lowerdir="+target+",upperdir="+upper+",workdir="+work)
}

func shadowKernelSettings(dir string) error {
	for name, value := range kernelSettings() {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // this kernel has no such setting, and kubelet fails to set it wherever it runs
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make a folder for sysctl %s: %w", name, err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil { // as readable as the one it stands for
			return fmt.Errorf("write sysctl %s: %w", name, err)
		}
		if err := mount(file, target, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
