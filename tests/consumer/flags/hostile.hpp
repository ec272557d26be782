// SPDX-License-Identifier: Apache-2.0
// Names that well-known system headers define as macros. They are defined here once the headers that zoomr includes
// have been read, since these take some of them back (the standard library of g++: min and max).
#pragma once

#define ZOOMR_NOT_A_NAME !this must not be read !

// <windows.h>, and what it includes
#define min(a, b) ZOOMR_NOT_A_NAME
#define max(a, b) ZOOMR_NOT_A_NAME
#define small ZOOMR_NOT_A_NAME
#define near ZOOMR_NOT_A_NAME
#define far ZOOMR_NOT_A_NAME
#define interface ZOOMR_NOT_A_NAME
#define hyper ZOOMR_NOT_A_NAME
#define pascal ZOOMR_NOT_A_NAME
#define cdecl ZOOMR_NOT_A_NAME
#define environ ZOOMR_NOT_A_NAME
#define IN ZOOMR_NOT_A_NAME
#define OUT ZOOMR_NOT_A_NAME
#define OPTIONAL ZOOMR_NOT_A_NAME
#define ERROR ZOOMR_NOT_A_NAME
#define DELETE ZOOMR_NOT_A_NAME
#define CONST ZOOMR_NOT_A_NAME
#define VOID ZOOMR_NOT_A_NAME
#define STRICT ZOOMR_NOT_A_NAME
#define TRUE ZOOMR_NOT_A_NAME
#define FALSE ZOOMR_NOT_A_NAME
#define NEAR ZOOMR_NOT_A_NAME
#define FAR ZOOMR_NOT_A_NAME
#define PASCAL ZOOMR_NOT_A_NAME
#define CDECL ZOOMR_NOT_A_NAME
#define CALLBACK ZOOMR_NOT_A_NAME
#define THIS ZOOMR_NOT_A_NAME
#define ABSOLUTE ZOOMR_NOT_A_NAME
#define RELATIVE ZOOMR_NOT_A_NAME
#define TRANSPARENT ZOOMR_NOT_A_NAME
#define OPAQUE ZOOMR_NOT_A_NAME
#define NO_ERROR ZOOMR_NOT_A_NAME
#define INFINITE ZOOMR_NOT_A_NAME
#define IGNORE ZOOMR_NOT_A_NAME
#define DOMAIN ZOOMR_NOT_A_NAME
#define OVERFLOW ZOOMR_NOT_A_NAME
#define UNDERFLOW ZOOMR_NOT_A_NAME
#define DIFFERENCE ZOOMR_NOT_A_NAME
#define ALTERNATE ZOOMR_NOT_A_NAME
#define WINDING ZOOMR_NOT_A_NAME
#define TEXT ZOOMR_NOT_A_NAME
#define Yield ZOOMR_NOT_A_NAME
#define GetObject ZOOMR_NOT_A_NAME
#define SendMessage ZOOMR_NOT_A_NAME
#define CreateFile ZOOMR_NOT_A_NAME
#define GetMessage ZOOMR_NOT_A_NAME
#define LoadImage ZOOMR_NOT_A_NAME
#define GetCurrentTime ZOOMR_NOT_A_NAME
#define CopyMemory ZOOMR_NOT_A_NAME
#define MoveMemory ZOOMR_NOT_A_NAME
#define FillMemory ZOOMR_NOT_A_NAME
#define ZeroMemory ZOOMR_NOT_A_NAME

// <X11/X.h>, <X11/Xlib.h>
#define None ZOOMR_NOT_A_NAME
#define Bool ZOOMR_NOT_A_NAME
#define Status ZOOMR_NOT_A_NAME
#define True ZOOMR_NOT_A_NAME
#define False ZOOMR_NOT_A_NAME
#define Always ZOOMR_NOT_A_NAME
#define Success ZOOMR_NOT_A_NAME
#define Unsorted ZOOMR_NOT_A_NAME
#define Above ZOOMR_NOT_A_NAME
#define Below ZOOMR_NOT_A_NAME
#define Complex ZOOMR_NOT_A_NAME
#define Convex ZOOMR_NOT_A_NAME
#define CursorShape ZOOMR_NOT_A_NAME
#define Expose ZOOMR_NOT_A_NAME
#define FocusIn ZOOMR_NOT_A_NAME
#define FocusOut ZOOMR_NOT_A_NAME
#define KeyPress ZOOMR_NOT_A_NAME
#define KeyRelease ZOOMR_NOT_A_NAME
#define FontChange ZOOMR_NOT_A_NAME
#define GrayScale ZOOMR_NOT_A_NAME

// <sys/param.h>, <sys/sysmacros.h>, <complex.h>, <termios.h>, <strings.h> of old
#define MIN ZOOMR_NOT_A_NAME
#define MAX ZOOMR_NOT_A_NAME
#define major ZOOMR_NOT_A_NAME
#define minor ZOOMR_NOT_A_NAME
#define makedev ZOOMR_NOT_A_NAME
#define howmany ZOOMR_NOT_A_NAME
#define roundup ZOOMR_NOT_A_NAME
#define powerof2 ZOOMR_NOT_A_NAME
#define setbit ZOOMR_NOT_A_NAME
#define clrbit ZOOMR_NOT_A_NAME
#define isset ZOOMR_NOT_A_NAME
#define I ZOOMR_NOT_A_NAME
#define B0 ZOOMR_NOT_A_NAME
#define B50 ZOOMR_NOT_A_NAME
#define ECHO ZOOMR_NOT_A_NAME
#define index ZOOMR_NOT_A_NAME
#define bcopy ZOOMR_NOT_A_NAME
#define bzero ZOOMR_NOT_A_NAME
