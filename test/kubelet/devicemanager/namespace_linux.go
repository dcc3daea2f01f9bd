// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate gives this process its own empty kubelet directory and starts the test binary over again with
// it; it returns only if the process is already isolated or on failure.
//
// Unsharing one thread and exec'ing from it keeps the process: signals, timeouts and exit codes of `go
// test` need no forwarding, and a killed test leaves no child. The mounts vanish with the process.
func isolate() error {
	if isolated() {
		return nil
	}
	if os.Getenv(startedEnv) != "" {
		return fmt.Errorf("%s is set, but %s is not a private directory", startedEnv, rootDir)
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed, for a private mount namespace with its own " + rootDir)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the test binary: %w", err)
	}
	runtime.LockOSThread() // the namespace belongs to this thread until exec makes it the process's only one
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unsharing the mount namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := mountRoot(); err != nil {
		return err
	}
	if err := os.WriteFile(markerFile, nil, 0o600); err != nil {
		return fmt.Errorf("marking the private directory: %w", err)
	}
	if err := syscall.Exec(self, os.Args, append(os.Environ(), startedEnv+"=1")); err != nil {
		return fmt.Errorf("starting %s again: %w", self, err)
	}
	return nil
}

// mountRoot mounts a tmpfs on kubelet's directory. On a machine without one, the
// tmpfs goes onto its parent: creating the directory would outlive the test.
func mountRoot() error {
	at := rootDir
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
		at = filepath.Dir(rootDir)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", at, err)
	}
	if err := os.MkdirAll(rootDir, 0o755); err != nil {
		return fmt.Errorf("creating kubelet's directory in the tmpfs: %w", err)
	}
	return nil
}
