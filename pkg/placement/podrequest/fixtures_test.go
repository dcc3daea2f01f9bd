// SPDX-License-Identifier: Apache-2.0

package podrequest

const testResource = "nvidia.com/gpu"

func testOptions() *Options {
	return &Options{Resources: []string{testResource}, Supported: AllPolicies()}
}
