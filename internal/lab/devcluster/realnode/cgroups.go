// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	cgroupMount = "/sys/fs/cgroup"
	// cgroupPrefix begins the name of the cgroup that holds all of a node's
	// containers; the rest is the number of the process that owns the node.
	cgroupPrefix = "nvtopo-realnode-"
	// cgroupTimeout bounds the wait for the kernel to let go of dead processes' cgroups.
	cgroupTimeout = 2 * time.Minute
)

// kubeletControllers are those of cgroup version 2 that kubelet wants in its
// root as far as the kernel has them (pkg/kubelet/cm, getSupportedUnifiedControllers).
func kubeletControllers() []string { return []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} }

// hierarchies are the mounted cgroup hierarchies: one in version 2, one for each controller in version 1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, fmt.Errorf("list the cgroup hierarchies: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return out, nil
}

// makeCgroup makes a cgroup at the top of every hierarchy: kubelet's root has to exist.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	if err := enableControllers(cgroupMount); err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
	}
	return nil
}

// enableControllers enables kubelet's controllers for the cgroups in root, in version 2, unless they are
// enabled already; systemd enables most of them. They stay enabled, which costs nothing without a limit.
func enableControllers(root string) error {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return fmt.Errorf("list the cgroup controllers: %w", err)
	}
	file := filepath.Join(root, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("list the enabled cgroup controllers: %w", err)
	}
	for _, c := range kubeletControllers() {
		if !slices.Contains(strings.Fields(string(available)), c) || slices.Contains(strings.Fields(string(enabled)), c) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+c), 0o600); err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", c, err)
		}
	}
	return nil
}

// removeCgroups removes every cgroup for whose top-level name removable returns true.
func removeCgroups(ctx context.Context, removable func(name string) bool) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			errs = append(errs, fmt.Errorf("list cgroups: %w", err))
			continue
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), cgroupPrefix) && removable(e.Name()) {
				errs = append(errs, removeCgroup(ctx, filepath.Join(root, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup and those in it. They are busy for a moment
// after their last process died.
func removeCgroup(ctx context.Context, path string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, cgroupTimeout, true, func(context.Context) (bool, error) {
		last = removeFolders(path)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, last)
	}
	return nil
}

// removeFolders removes folders from the leaves up; the files in a cgroup are
// the kernel's and vanish with it.
func removeFolders(path string) error {
	var folders []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			folders = append(folders, p)
		}
		return nil
	})
	for _, p := range slices.Backward(folders) {
		if rerr := os.Remove(p); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return rerr // the caller names it
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err // the caller names it
}

// abandoned reports whether a cgroup with cgroupPrefix belongs to an owner that is gone.
func abandoned(name string) bool {
	owner, _, _ := strings.Cut(strings.TrimPrefix(name, cgroupPrefix), "-")
	_, err := os.Stat(filepath.Join("/proc", owner))
	return errors.Is(err, fs.ErrNotExist)
}
