/* Foundation.h: what src/devices/metal/metal_device.m uses of Apple's header of that name, as its documentation gives
 * it, for tests/check_metal.py to check the file's syntax and types where no Mac is. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef unsigned long NSUInteger;
typedef signed char BOOL;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil ((id)0)
__attribute__((objc_root_class)) @interface NSObject
+ (instancetype)new;
@end
@interface NSString : NSObject
@property(readonly) const char *UTF8String;
+ (instancetype)stringWithUTF8String:(const char *)text;
- (NSString *)stringByAppendingString:(NSString *)more;
@end
@interface NSConstantString : NSString
@end
@interface NSError : NSObject
@property(readonly) NSString *localizedDescription;
@end
@interface NSArray<ObjectType> : NSObject
@property(readonly) NSUInteger count;
- (ObjectType)objectAtIndexedSubscript:(NSUInteger)i;
@end
