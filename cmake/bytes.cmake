# bytes.cmake: the bytes of IN as numbers of a C initialiser in OUT.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "${bytes}\n")
