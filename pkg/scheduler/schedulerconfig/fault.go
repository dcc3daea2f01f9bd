// SPDX-License-Identifier: Apache-2.0

package schedulerconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/nvtopo/nvtopo/internal/fieldpath"
)

// Fault has the problems of a configuration, in one line that begins with its file.
type Fault struct {
	file     string
	problems []string // each begins with the path of its field, where one is known
}

func (f *Fault) Error() string { return f.file + ": " + strings.Join(f.problems, "; ") }

// faultf makes a Fault of one problem. The caller sets the file.
func faultf(format string, args ...any) *Fault {
	return &Fault{problems: []string{fieldpath.OneLine(fmt.Sprintf(format, args...))}}
}

// Unreadable is the Fault of a file that cannot be read.
func Unreadable(name string, err error) *Fault {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the path is the name
	}
	f := faultf("%s", err)
	f.file = name
	return f
}
