// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// Exit codes of the command.
const (
	ExitOK       = 0 // the result is on standard output
	ExitNoAnswer = 1 // the request is valid, but has no solution
	ExitUsage    = 2 // a flag or argument is wrong
	ExitInput    = 3 // a file or the cluster could not be read, or does not describe a graph
)

// codedError is an error with the command's exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func noAnswerf(format string, args ...any) error {
	return &codedError{ExitNoAnswer, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error {
	return &codedError{ExitUsage, fmt.Errorf(format, args...)}
}

func inputf(format string, args ...any) error {
	return &codedError{ExitInput, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code for the command's error. An error without its own code can only come from
// reading or writing.
func ExitCode(err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.code
	}
	return ExitInput
}
