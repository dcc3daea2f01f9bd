// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package devicemanager

import "errors"

func isolate() error {
	return errors.New("linux is needed, for a private mount namespace with its own " + rootDir)
}
