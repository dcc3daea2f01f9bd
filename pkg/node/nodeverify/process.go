// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxFile limits the read of one file: the kernel's are some kilobytes, except for kubelet's checkpoint
// and an environment.
const maxFile = 64 << 20

// Process holds the kernel's data on one process.
type Process struct {
	PID   int
	Name  string
	CPUs  nvtopo.CPUSet // on which it may run
	Nodes nvtopo.CPUSet // NUMA nodes from which it may take memory

	Environment    []string // NAME=VALUE, as it was when the program started
	EnvironmentErr error    // reason why it is not known

	Pages    map[int]int64 // bytes by NUMA node
	PagesErr error         // reason why they are not known

	Threads []Thread
}

// Thread is one thread, and the CPU on which it ran last.
type Thread struct{ TID, CPU int }

// ReadProcess reads a process below root, which has the folder proc. Values that only its owner or root
// may read are left out with the reason.
func ReadProcess(root fs.FS, pid int) (*Process, error) {
	dir := "proc/" + strconv.Itoa(pid)
	text, err := readText(root, dir+"/status")
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	s, err := parseStatus(text)
	if err != nil {
		return nil, fmt.Errorf("%s/status: %w", dir, err)
	}
	p := &Process{PID: pid, Name: s.name, CPUs: s.cpus, Nodes: s.nodes}
	if text, err = readText(root, dir+"/environ"); err == nil {
		p.Environment = parseEnviron(text)
	} else {
		p.EnvironmentErr = err
	}
	p.Pages, p.PagesErr = readPages(root, dir+"/numa_maps")
	if p.Threads, err = readThreads(root, dir+"/task"); err != nil {
		return nil, err
	}
	return p, nil
}

func readPages(root fs.FS, path string) (map[int]int64, error) {
	f, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	pages, err := parseNUMAMaps(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return pages, nil
}

// readThreads returns the threads, without those that end meanwhile.
func readThreads(root fs.FS, dir string) ([]Thread, error) {
	tids, err := numbered(root, dir)
	if err != nil {
		return nil, err
	}
	var threads []Thread
	for _, tid := range tids {
		s, err := readStat(root, dir+"/"+strconv.Itoa(tid)+"/stat")
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		threads = append(threads, Thread{TID: tid, CPU: s.cpu})
	}
	return threads, nil
}

func readStat(root fs.FS, path string) (stat, error) {
	text, err := readText(root, path)
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(text)
	if err != nil {
		return stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ReadTree reads a process and all its descendants, in ascending order of their PIDs. Descendants that
// end meanwhile are left out.
func ReadTree(root fs.FS, pid int) ([]*Process, error) {
	all, err := numbered(root, "proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, p := range all {
		s, err := readStat(root, "proc/"+strconv.Itoa(p)+"/stat")
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		children[s.parent] = append(children[s.parent], p)
	}
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	first, err := ReadProcess(root, pid)
	if err != nil {
		return nil, err
	}
	rest := slices.Clone(tree[1:])
	slices.Sort(rest)
	others, err := readAll(root, rest)
	return append([]*Process{first}, others...), err
}

// readAll reads the processes, without those that end meanwhile.
func readAll(root fs.FS, pids []int) ([]*Process, error) {
	var all []*Process
	for _, pid := range pids {
		p, err := ReadProcess(root, pid)
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// ReadPod reads the processes of a pod's containers: uid is the one in the name of the pod's cgroup, and
// containers maps the runtime's ids to names. The processes of the pod's sandbox belong to no container.
func ReadPod(root fs.FS, uid string, containers map[string]string) (map[string][]*Process, error) {
	all, err := numbered(root, "proc")
	if err != nil {
		return nil, err
	}
	pids := map[string][]int{}
	for _, pid := range all {
		path := "proc/" + strconv.Itoa(pid) + "/cgroup"
		text, err := readText(root, path)
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		paths, err := parseCgroup(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if name, ok := containerOf(paths, uid, containers); ok {
			pids[name] = append(pids[name], pid)
		}
	}
	out := map[string][]*Process{}
	for name, ids := range pids {
		if out[name], err = readAll(root, ids); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// containerOf returns the container whose cgroup is one of the paths. The systemd driver writes a UID
// with underscores.
func containerOf(paths []string, uid string, containers map[string]string) (name string, ok bool) {
	for _, path := range paths {
		if !strings.Contains(path, "pod"+uid) && !strings.Contains(path, "pod"+strings.ReplaceAll(uid, "-", "_")) {
			continue
		}
		for id, name := range containers {
			if id != "" && strings.Contains(path, id) {
				return name, true
			}
		}
	}
	return "", false
}

// numbered lists the entries of a folder whose names are numbers, in ascending order.
func numbered(root fs.FS, dir string) ([]int, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 31); err == nil {
			all = append(all, int(n))
		}
	}
	slices.Sort(all)
	return all, nil
}

// ended reports whether a file could not be read because its process or thread has ended.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func readText(root fs.FS, path string) (string, error) {
	f, err := root.Open(path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("%s: more than %d bytes", path, maxFile)
	}
	return string(data), nil
}
