// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	driver "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// New returns the library installed on this machine. path is its file, or empty for libnvidia-ml.so.1
// from the loader's search path.
func New(path string) nvml.Library {
	path = cmp.Or(path, "libnvidia-ml.so.1")
	return library{driver.New(driver.WithLibraryPath(path)), path}
}

type library struct {
	drv  driver.Interface
	path string
}

// check turns a return code into an *nvml.Error. The driver's text is in its library, which may be
// unloaded before the error is read.
func check(call string, ret driver.Return) error {
	if ret == driver.SUCCESS {
		return nil
	}
	return &nvml.Error{Call: call, Kind: kindOf(ret), Text: strings.Clone(ret.Error())}
}

func kindOf(ret driver.Return) nvml.ErrorKind {
	switch ret {
	case driver.ERROR_NOT_SUPPORTED, driver.ERROR_FUNCTION_NOT_FOUND, driver.ERROR_ARGUMENT_VERSION_MISMATCH, driver.ERROR_DEPRECATED:
		return nvml.KindNotSupported
	case driver.ERROR_INVALID_ARGUMENT:
		return nvml.KindInvalidArgument
	case driver.ERROR_GPU_IS_LOST, driver.ERROR_RESET_REQUIRED:
		return nvml.KindLost
	case driver.ERROR_NO_PERMISSION:
		return nvml.KindNoPermission
	case driver.ERROR_INSUFFICIENT_POWER, driver.ERROR_IRQ_ISSUE, driver.ERROR_CORRUPTED_INFOROM:
		return nvml.KindUnavailable
	case driver.ERROR_TIMEOUT:
		return nvml.KindTimeout
	case driver.ERROR_LIBRARY_NOT_FOUND, driver.ERROR_DRIVER_NOT_LOADED:
		return nvml.KindNoDriver
	case driver.ERROR_LIB_RM_VERSION_MISMATCH:
		return nvml.KindMismatch
	default:
		return nvml.KindOther
	}
}

// need returns an error for symbols that the installed driver does not have.
func (l library) need(symbols ...string) error {
	for _, s := range symbols {
		if err := l.drv.Extensions().LookupSymbol(s); err != nil {
			return &nvml.Error{Call: s, Kind: nvml.KindNotSupported, Text: "not in the installed driver"}
		}
	}
	return nil
}

// needAny returns an error for a call that the installed driver has in none of its versions. go-nvml uses
// the latest one present.
func (l library) needAny(symbol string, suffixes ...string) error {
	err := l.need(symbol)
	for _, s := range suffixes {
		if err == nil {
			break
		}
		if l.need(symbol+s) == nil {
			err = nil
		}
	}
	return err
}

// Init also refuses a library that lacks symbols which go-nvml calls unconditionally: it can look up
// symbols only after that.
func (l library) Init() error {
	if err := l.vital(); err != nil {
		return err
	}
	return check("nvmlInit", l.drv.Init())
}

func (l library) vital() error {
	lib := dl.New(l.path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return nil //nolint:nilerr // go-nvml finds the same and has a code for it
	}
	missing := lib.Lookup("nvmlInit_v2")
	if missing != nil {
		missing = lib.Lookup("nvmlInit")
	}
	missing = cmp.Or(missing, lib.Lookup("nvmlShutdown"), lib.Lookup("nvmlErrorString"))
	_ = lib.Close() // the library opened by go-nvml stays
	if missing != nil {
		return &nvml.Error{Call: "nvmlInit", Kind: nvml.KindNoDriver, Text: "not NVIDIA's management library: " + missing.Error()}
	}
	return nil
}

func (l library) Shutdown() error { return check("nvmlShutdown", l.drv.Shutdown()) }

func (l library) DeviceCount() (int, error) {
	const symbol = "nvmlDeviceGetCount"
	if err := l.needAny(symbol, "_v2"); err != nil {
		return 0, err
	}
	n, ret := l.drv.DeviceGetCount()
	return n, check(symbol, ret)
}

func (l library) Device(index int) (nvml.Device, error) {
	const symbol = "nvmlDeviceGetHandleByIndex"
	if err := l.needAny(symbol, "_v2"); err != nil {
		return nil, err
	}
	d, ret := l.drv.DeviceGetHandleByIndex(index)
	if err := check(symbol, ret); err != nil {
		return nil, err
	}
	return device{l, d}, nil
}
