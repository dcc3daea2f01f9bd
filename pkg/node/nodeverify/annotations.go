// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// ParseAnnotations parses the downward API's file of metadata.annotations: a line KEY="VALUE" for each,
// with Go's escapes.
func ParseAnnotations(text string) (map[string]string, error) {
	all := map[string]string{}
	no := 0
	for line := range strings.Lines(text) {
		no++
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf(`line %d: want KEY="VALUE"`, no)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: the value of %s: %w", no, key, err)
		}
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", no, key)
		}
		all[key] = value
	}
	return all, nil
}

// Beside reports whether the process shares the caller's mount namespace, so that files that the caller
// finds are those of the process. root has the proc of the caller's own PID namespace.
func Beside(root fs.FS, pid int) bool {
	own, err := fs.ReadLink(root, "proc/self/ns/mnt")
	if err != nil {
		return false
	}
	its, err := fs.ReadLink(root, "proc/"+strconv.Itoa(pid)+"/ns/mnt")
	return err == nil && own == its
}
