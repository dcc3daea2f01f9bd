// SPDX-License-Identifier: Apache-2.0

//go:build race

package kubeletadmission

const raceDetector = true
