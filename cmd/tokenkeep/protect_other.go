//go:build !linux

package main

// protectMemory does nothing where the system has other means.
func protectMemory() {}
